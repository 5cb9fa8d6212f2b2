"""The gradient laboratory, ``ddpg paths``: compare, check, time, trace and draw all gradient paths on one minibatch."""
