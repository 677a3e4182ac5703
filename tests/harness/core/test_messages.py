"""Any bytes in the pipe of a process that runs third-party code: a message, or one refusal, and never a wait."""

import json
import multiprocessing
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.isolation.messages import LONGEST, READ, BadMessage, Receiver, send
from harness.core.texts import control_fault
from harness.execution.local.process import LONGEST_TEXT, read_progress

FEW = settings(derandomize=True, max_examples=40, deadline=None, database=None)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=3,
)
MESSAGES = st.dictionaries(st.sampled_from(["fraction", "text", "event"]) | st.text(max_size=5), VALUES, max_size=4)
PROGRESS = st.fixed_dictionaries({"fraction": VALUES | st.floats(), "text": VALUES | st.text(max_size=600)})


def pipe():
    receiver, sender = multiprocessing.Pipe(duplex=False)
    return Receiver(receiver), sender


@FEW
@given(st.lists(MESSAGES, max_size=4), st.lists(st.integers(1, 200), min_size=1, max_size=6))
def test_messages_arrive_whole_and_in_order_however_they_are_cut(messages, cuts):
    content = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
    receiver, sender = pipe()
    with receiver.connection, sender:
        arrived = []
        while content:
            cuts.append(cut := cuts.pop(0))
            os.write(sender.fileno(), content[:cut])
            content = content[cut:]
            arrived += receiver.receive()
        assert json.dumps(arrived) == json.dumps(messages) and not receiver.partial  # as texts, since nan != nan
        assert receiver.receive() == []


@FEW
@given(
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from([b"\n", b"{", b"}\n", b"[" * 5000, b"9" * 5000, b'{"a":', b"\0\0\0\4", b"\x80\4."])
        | MESSAGES.map(lambda message: json.dumps(message).encode() + b"\n"),
        max_size=12,
    )
)
def test_any_bytes_are_messages_or_refused_without_waiting(parts):
    receiver, sender = pipe()
    with receiver.connection, sender:
        for part in parts:
            if not receiver.connection.closed:
                os.write(sender.fileno(), part)
            try:
                for message in receiver.receive():
                    assert isinstance(message, dict)
            except BadMessage as error:
                assert len(str(error)) < 200 and str(error).isprintable()
                break


@FEW
@given(MESSAGES | PROGRESS)
def test_a_message_is_progress_within_bounds_or_refused(message):
    try:
        fraction, text = read_progress(json.loads(json.dumps(message)))
    except BadMessage as error:
        assert str(error).isprintable() and len(str(error)) < 200
    else:
        assert 0 <= fraction <= 1
        assert "\n" not in text and control_fault(text) is None and len(text) <= 10 * (LONGEST_TEXT + 1)


def test_a_message_beyond_the_longest_is_not_sent_and_one_that_never_ends_is_refused_there():
    receiver, sender = pipe()
    with receiver.connection, sender:
        with pytest.raises(ValueError, match=f"at most {LONGEST} are allowed"):
            send(sender, {"text": "x" * LONGEST})
        os.set_blocking(sender.fileno(), False)
        with pytest.raises(BadMessage, match=f"more than {LONGEST} bytes without the end of a message"):
            for _ in range(LONGEST // 4096 + 2):
                os.write(sender.fileno(), b" " * 4096)
                assert receiver.receive() == []
        assert LONGEST <= READ
