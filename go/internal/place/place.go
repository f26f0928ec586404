// Package place leads from snibotel to where a lock is, which package snib alone knows.
package place

// Of returns the same for locks of one name on one server, whatever their clients, and "" for what is no lock of package
// snib, which sets it.
var Of func(lock any) string
