"""Effect of a deploy, for those who approve it: a comment, and a refusal if necessary."""
