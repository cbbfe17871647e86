"""Images of users."""
