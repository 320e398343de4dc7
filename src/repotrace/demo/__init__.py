"""The demonstration: a project, a scripted agent that breaks it, and the proof of the break."""
