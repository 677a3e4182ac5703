"""Make and check the private folders of cluster jobs: jobs execute their content, so no other user may change it."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from harness.core.errors import UserError

PRIVATE = 0o700
OTHERS = 0o077  # rights of the group and of all others
RULE = "must be a folder of the user who submits, without rights for others (mode 0700): jobs execute what is in it"
HINT = "remove it, if nothing in it is needed, and run again, or choose another --out"


def make_private(folder: Path) -> None:
    """Make a folder for this user alone, whatever the umask; one that exists gets the mode 0700.

    Raises:
        UserError: it exists and is not a folder of this user.
    """
    folder.mkdir(mode=PRIVATE, exist_ok=True)
    if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
        # The umask may have narrowed the mode, and the folder around have added the set-group bit.
        folder.chmod(PRIVATE)
    check_private(folder)


def check_private(*folders: Path) -> None:
    """Raise a UserError for the first of these that is not a folder of this user alone."""
    for folder in folders:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & OTHERS:
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no folder"
            facts = f"it is {kind} of user {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"
            raise UserError(f"{folder}: {RULE}; {facts}; {HINT}")


def check_in_shell(*folders: Path) -> str:
    """Return a line of shell that ends a job unless these are folders of this user alone."""
    names = " ".join(shlex.quote(str(folder)) for folder in folders)
    refuse = f'echo "$folder: {RULE}; {HINT}" >&2; exit 1'
    return (
        f'for folder in {names}; do case "$(stat -c %F:%u:%a "$folder")" in directory:{os.getuid()}:*00) ;; '
        f"*) {refuse} ;; esac; done"
    )
