"""Options, trials and folders that several commands share."""
