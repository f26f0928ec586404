//go:build cgo

package snib

import (
	"os"
	"slices"
	"strings"

	"github.com/snib-lock/snib/go/internal/place"
)

func init() {
	place.Of = func(lock any) string {
		if l, ok := lock.(interface{ place() string }); ok {
			return l.place()
		}
		return ""
	}
}

// addressOf returns where a client's locks are: the URL without user, password and options.
func addressOf(url string) string {
	if url == "" {
		url = os.Getenv("SNIB_URL")
	}
	if url == "" {
		url = "redis://127.0.0.1:6379"
	}
	url, options, _ := strings.Cut(url, "?")
	scheme, rest, _ := strings.Cut(url, "://")
	host, path, _ := strings.Cut(rest, "/") // a path may have an @
	address := scheme + "://" + host[strings.LastIndex(host, "@")+1:] + "/" + path
	for option := range strings.SplitSeq(options, "&") {
		if strings.HasPrefix(option, "db=") {
			address += "?" + option
		}
	}
	return address
}

func (l *lock) place() string {
	if l == nil || l.client == nil {
		return ""
	}
	return l.name + "\x00" + l.client.address // no name has a NUL
}

// place does not depend on the order of the members.
func (g *Group) place() string {
	var all []string
	for _, member := range g.members {
		all = append(all, member.place())
	}
	slices.Sort(all)
	return strings.Join(all, "\x00")
}
