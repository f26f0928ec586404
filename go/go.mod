module github.com/snib-lock/snib/go

go 1.24
