module recorder

go 1.24

require github.com/snib-lock/snib/go v0.0.0

replace github.com/snib-lock/snib/go => ../../../go
