"""Where the user's code is: source locations, and the words in which messages name things there."""
