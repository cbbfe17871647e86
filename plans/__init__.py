"""What a deploy would do, for those who have to agree to it: as a comment, and as a refusal."""
