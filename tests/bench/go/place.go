package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// A place describes the servers for libraries that do not accept Snib's URLs.
type place struct {
	url    string // as it was given
	addrs  []string
	secure *tls.Config // nil: plain TCP
}

func parsePlace(text string) (place, error) {
	at := place{url: text}
	for _, one := range strings.Fields(text) {
		scheme, rest, _ := strings.Cut(one, "://")
		hosts, query, _ := strings.Cut(rest, "?")
		at.addrs = append(at.addrs, strings.Split(hosts, ",")...)
		if !strings.HasPrefix(scheme, "rediss") {
			continue
		}
		options, err := url.ParseQuery(query)
		if err != nil {
			return at, err
		}
		if at.secure, err = trusting(options.Get("tls_ca")); err != nil {
			return at, err
		}
	}
	return at, nil
}

// trusting trusts only the authorities in one file.
func trusting(file string) (*tls.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("no certificate in %s", file)
	}
	return &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}, nil
}
