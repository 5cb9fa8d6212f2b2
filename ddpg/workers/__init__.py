"""Workers that step environments in other processes or on Ray nodes, for the learner in this process."""
