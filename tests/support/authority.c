/* authority.c - certificates made by the openssl command: good ones, and some kinds of bad ones. */
#include "deployment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run(const char *format, ...)
{
    char command[2048];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(command, sizeof command, format, list);
    va_end(list);
    assert_true(n > 0 && (size_t)n < sizeof command);
    if (system(command) != 0) /* NOLINT: no foreign input */
        fail_msg("failed: %s", command);
}

static void make_key(const char *path)
{
    run("openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out '%s' 2>/dev/null",
        path);
}

void authority_make(struct authority *authority, const char *dir, const char *name)
{
    snprintf(authority->dir, sizeof authority->dir, "%s", dir);
    snprintf(authority->ca, sizeof authority->ca, "%.90s/%.24s.crt", dir, name);
    snprintf(authority->key, sizeof authority->key, "%.90s/%.24s.key", dir, name);
    make_key(authority->key);
    run("openssl req -x509 -new -key '%s' -out '%s' -days 2 -subj '/CN=Snib test %s' "
        "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign",
        authority->key, authority->ca, name);
}

static struct certificate certificate_new(const char *dir, const char *name)
{
    struct certificate certificate;
    snprintf(certificate.file, sizeof certificate.file, "%.96s/%.50s.crt", dir, name);
    snprintf(certificate.key, sizeof certificate.key, "%.96s/%.50s.key", dir, name);
    make_key(certificate.key);
    return certificate;
}

struct certificate authority_certificate(const struct authority *authority, const char *name,
                                         const char *hosts, unsigned flags)
{
    struct certificate certificate = certificate_new(authority->dir, name);
    char base[160];
    snprintf(base, sizeof base, "%.96s/%.50s", authority->dir, name);
    run("openssl req -new -key '%s' -out '%s.csr' -subj '/CN=%s'", certificate.key, base, name);
    run("printf 'basicConstraints=CA:FALSE\\nextendedKeyUsage=%s\\n%s%s\\n' >'%s.ext'",
        flags & CERTIFICATE_CLIENT ? "clientAuth" : "serverAuth,clientAuth",
        *hosts ? "subjectAltName=" : "", hosts, base);
    run("openssl x509 -req -in '%s.csr' -CA '%s' -CAkey '%s' -CAcreateserial -out '%s' "
        "-extfile '%s.ext' -days %d 2>/dev/null",
        base, authority->ca, authority->key, certificate.file, base,
        flags & CERTIFICATE_EXPIRED ? -1 : 2);
    return certificate;
}

struct certificate certificate_self_signed(const char *dir, const char *name, const char *hosts)
{
    struct certificate certificate = certificate_new(dir, name);
    run("openssl req -x509 -new -key '%s' -out '%s' -days 2 -subj '/CN=%s' "
        "-addext subjectAltName=%s",
        certificate.key, certificate.file, name, hosts);
    return certificate;
}
