package main

func mpsChains() []chain { return nil }
