"""Workers that step environments elsewhere, in processes or on Ray's nodes, for the one learner of this process."""
