"""The methods that assign tasks to machines. The registry beside this package lists them."""
