"""Pure tensor mathematics, one equation per function; imports no other room."""
