package condition
