"""What makes a laptop a system: embedded servers, processes, stand-ins, demo and load."""
