"""What the command line does, one function per command; `openauc.cli` registers them."""
