//go:build cgo

package snib_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	snib "github.com/snib-lock/snib/go"
)

// tlsServer starts a server with TLS on localhost: Debian's, which redis-tools contains under another name, because not
// every package of the server has TLS.
func tlsServer(t *testing.T) (port int, certs string) {
	t.Helper()
	certs = t.TempDir()
	script, err := filepath.Abs("../tests/support/certs.sh")
	must(t, err)
	if _, err := os.Stat(script); err != nil {
		t.Skip("the certificates are made by a script of the repository")
	}
	if out, err := exec.Command(script, certs).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const debian = "/usr/bin/redis-check-rdb"
	binary, err := serverBinary()
	must(t, err)
	if _, err := os.Stat(debian); err == nil {
		binary = filepath.Join(certs, "redis-server")
		must(t, os.Symlink(debian, binary))
	}
	free := freePort(t)
	port, err = strconv.Atoi(free)
	must(t, err)
	s, err := launchAs(binary, "--tls-port", free, "--tls-auth-clients", "no", "--tls-cert-file", certs+"/server.crt",
		"--tls-key-file", certs+"/server.key", "--tls-ca-cert-file", certs+"/ca.crt")
	must(t, err)
	t.Cleanup(s.stop)
	return port, certs
}

// OpenSSL is loaded on demand: this package is built without it.
func TestTLS(t *testing.T) {
	port, certs := tlsServer(t)
	url := fmt.Sprintf("rediss://localhost:%d", port)
	client := open(t, url, snib.TLSCA(certs+"/ca.crt"))
	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := 0; n < 50; n++ {
				if err := client.Mutex("tls").Do(context.Background(), func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
	for options, says := range map[string]string{
		"tls_ca=" + certs + "/strange.crt":                      "not signed by the given CA",
		"tls_ca=" + certs + "/none":                             "cannot be read",
		"tls_ca=" + certs + "/ca.crt&tls_server_name=elsewhere": "not for elsewhere",
	} {
		_, err := snib.Open(context.Background(), url+"?"+options)
		expect(t, options, err, snib.ErrTLS)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", options, err)
		}
	}
}
