module github.com/snib-lock/snib/tests/bench/go

go 1.26

require (
	github.com/snib-lock/snib/go v0.0.0
)

replace github.com/snib-lock/snib/go => ../../../go
