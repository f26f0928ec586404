// Package clock leads from snibtest to the clock of the clients, which package snib alone can move.
package clock

// Advance moves the clock of all clients of the process forward. Package snib sets it.
var Advance func(ms int64) error
