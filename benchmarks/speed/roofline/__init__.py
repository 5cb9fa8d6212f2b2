"""How near an update comes to what the machine can do, and where the rest goes."""
