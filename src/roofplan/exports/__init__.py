"""Launch commands and configuration files of plans, in the options of the software that runs them."""
