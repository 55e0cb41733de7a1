"""The same recipes on Flower: letters between the server and devices on a network."""
