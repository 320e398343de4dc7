"""The commands, one file each: parse, call, emit. `app` joins them."""
