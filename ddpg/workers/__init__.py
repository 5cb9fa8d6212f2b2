"""Workers that step environments in other processes or on Ray's nodes, for the one learner of this process."""
