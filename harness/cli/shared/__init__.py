"""Options, trials, folders and streams that several commands share."""
