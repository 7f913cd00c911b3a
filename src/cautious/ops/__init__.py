"""Pure tensor mathematics, one equation a function; imports no other room."""
