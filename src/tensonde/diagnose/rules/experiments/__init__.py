"""What experiments found (`tensonde/experiments`), in words."""
