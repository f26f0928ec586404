//go:build linux && !cgo

package snib

// Snib's core is written in C, so a build without cgo ends here, with a name that says what to do.
var _ = snib_requires_CGO_ENABLED_1_and_a_C_compiler
