"""The run half: what is recorded of an agent, and what can be done with it afterwards."""
