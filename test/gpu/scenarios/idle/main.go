// Command idle does nothing: what any static Go program costs.
package main

func main() {}
