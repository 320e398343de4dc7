"""The terminal screen of `repotrace play`. The only importer of Textual.

Everything that is shown of a run comes as lines of styled pieces from `render`, and is drawn
without ever being parsed: captured text cannot be read as markup.
"""
