"""One table of jobs, played through several controllers on several API servers, and compared field by field."""
