"""What can be known of an exception when the program is ending anyway: facts only, the reasoning is in
`diagnose/rules`."""
