"""The gradient laboratory, ``ddpg paths``: every path on one minibatch, compared, checked, timed, traced, drawn."""
