/* tls_why.c - explains a TLS failure in one sentence that says what to do. */
#include "driver/tls.h"
#include "driver/tls_openssl.h"
#include "net/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WHY_LIB_SSL 20
#define WHY_ALERT 1000 /* + the alert's number: reasons given by the peer */

/* Numbers of OpenSSL's stable ABI: reasons, and results of a verification. */
enum {
    WHY_NO_PROTOCOLS = 191,
    WHY_PACKET_TOO_LONG = 198,
    WHY_UNEXPECTED_MESSAGE = 244,
    WHY_UNKNOWN_PROTOCOL = 252,
    WHY_UNSUPPORTED_PROTOCOL = 258,
    WHY_WRONG_SSL_VERSION = 266,
    WHY_WRONG_VERSION_NUMBER = 267,
    WHY_BAD_RECORD = 281,
    WHY_UNEXPECTED_EOF = 294,
    WHY_VERSION_TOO_LOW = 396,
    WHY_BAD_RECORD_TYPE = 443,
    WHY_MALLOC_FAILURE = 0xc0100, /* of every library */
    WHY_X_ISSUER = 2,
    WHY_X_EARLY = 9,
    WHY_X_EXPIRED = 10,
    WHY_X_SELF_SIGNED = 18,
    WHY_X_SELF_SIGNED_CA = 19,
    WHY_X_ISSUER_HERE = 20,
    WHY_X_LEAF = 21,
    WHY_X_UNTRUSTED = 27,
    WHY_X_HOST = 62,
    WHY_X_ADDRESS = 64
};

static int32_t why_code(int outcome)
{
    return outcome == SNIB__TLS_FINE         ? SNIB_OK
           : outcome == SNIB__TLS_NO_LIBRARY ? SNIB_ENOTSUP
                                             : SNIB_ETLS;
}

static int why_errno(int outcome)
{
    return outcome == SNIB__TLS_CUT         ? ECONNRESET
           : outcome == SNIB__TLS_BROKEN    ? EPROTO
           : outcome == SNIB__TLS_SILENT    ? ETIMEDOUT
           : outcome == SNIB__TLS_NO_MEMORY ? ENOMEM
                                            : 0;
}

bool snib__tls_fail(struct snib__tls_failure *out, int outcome, const char *format, ...)
{
    snib_error clean;
    char text[sizeof clean.text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    *out = (struct snib__tls_failure){.outcome = outcome, .code = why_code(outcome)};
    out->os_error = why_errno(outcome);
    snib__fail(&clean, out->code, 0, "%s", text);
    snprintf(out->text, sizeof out->text, "%.*s", (int)sizeof out->text - 1, clean.text);
    return false;
}

/* Take the errors off this thread's queue.  The last one is TLS's own: lower layers report first.  *out_short is the
 * system's if it was short of descriptors or of memory; else 0.  For want of
 * memory OpenSSL comes to all manner of verdicts, as that the certificate is for another host: it may say the reason
 * before that, or leave it in errno. */
static unsigned long why_last(const struct snib__openssl *o, int *out_short)
{
    unsigned long last = 0;
    *out_short = errno == ENOMEM ? ENOMEM : 0;
    for (unsigned long error; (error = o->ERR_get_error()); last = error) {
        int os_error = (int)(error & 0x7fffffff);
        if (!(error & 0x80000000u) && (error & 0x7fffff) == WHY_MALLOC_FAILURE)
            *out_short = ENOMEM;
        if ((error & 0x80000000u) && snib__sys_short(os_error))
            *out_short = os_error;
    }
    return last;
}

bool snib__tls_unable(struct snib__tls_failure *out)
{
    const struct snib__openssl *o = snib__openssl();
    int short_of;
    unsigned long error = why_last(o, &short_of);
    const char *words = error ? o->ERR_reason_error_string(error) : NULL;
    if (short_of || !words)
        return snib__tls_fail(out, SNIB__TLS_NO_MEMORY, "out of memory");
    return snib__tls_fail(out, SNIB__TLS_REFUSED,
                          "OpenSSL cannot begin TLS: %s; check its configuration (openssl.cnf)",
                          words);
}

static void why_certificate(struct snib__tls_failure *out, long verdict, const char *host,
                            const struct snib__tls_context *context)
{
    const char *store = context->own_ca ? "the given CA" : "the system's CAs";
    switch (verdict) {
    case WHY_X_EXPIRED:
        snib__tls_fail(out, SNIB__TLS_EXPIRED,
                       "the certificate of %s, or of its CA, has expired; renew it on the server",
                       host);
        return;
    case WHY_X_EARLY:
        snib__tls_fail(
            out, SNIB__TLS_EARLY,
            "the certificate of %s is not valid yet; check the clocks of client and server", host);
        return;
    case WHY_X_SELF_SIGNED:
        snib__tls_fail(
            out, SNIB__TLS_SELF_SIGNED,
            "the certificate of %s is self-signed; to trust it, give it with the option tls_ca",
            host);
        return;
    case WHY_X_SELF_SIGNED_CA:
    case WHY_X_ISSUER:
    case WHY_X_ISSUER_HERE:
    case WHY_X_LEAF:
    case WHY_X_UNTRUSTED:
        snib__tls_fail(
            out, SNIB__TLS_UNKNOWN_CA,
            "the certificate of %s is not signed by %s; give its CA with the option tls_ca", host,
            store);
        return;
    case WHY_X_HOST:
    case WHY_X_ADDRESS:
        snib__tls_fail(out, SNIB__TLS_WRONG_HOST,
                       "the server's certificate is not for %s; connect by a name that it has, or "
                       "give one with the option tls_server_name",
                       host);
        return;
    default:
        snib__tls_fail(out, SNIB__TLS_BAD_CERTIFICATE, "the certificate of %s is refused: %s", host,
                       snib__openssl()->X509_verify_cert_error_string(verdict));
    }
}

/* An alert that the peer has sent. */
static void why_alert(struct snib__tls_failure *out, int alert, const char *words, const char *host,
                      const struct snib__tls_context *context)
{
    switch (alert) {
    case 70: /* protocol_version */
        snib__tls_fail(out, SNIB__TLS_VERSION,
                       "%s does not offer TLS 1.2 or newer; enable it on the server", host);
        return;
    case 20: /* bad_record_mac */
    case 80: /* internal_error */
    case 90: /* user_canceled */
        snib__tls_fail(out, SNIB__TLS_BROKEN, "%s ended TLS: %s", host, words);
        return;
    case 40:  /* handshake_failure: before 1.3 also for want of a certificate */
    case 41:  /* no_certificate */
    case 42:  /* bad_certificate */
    case 43:  /* unsupported_certificate */
    case 44:  /* certificate_revoked */
    case 45:  /* certificate_expired */
    case 46:  /* certificate_unknown */
    case 48:  /* unknown_ca */
    case 49:  /* access_denied */
    case 116: /* certificate_required */
        if (context->has_cert && alert != 40)
            snib__tls_fail(out, SNIB__TLS_CERT_REFUSED,
                           "%s refuses the client certificate (%s); check it and the server's CA",
                           host, words);
        else if (!context->has_cert)
            snib__tls_fail(out, SNIB__TLS_CERT_WANTED,
                           "%s requires a client certificate (%s); give its file and the key file",
                           host, words);
        else
            snib__tls_fail(out, SNIB__TLS_REFUSED,
                           "%s has no TLS parameters in common, or refuses the client certificate",
                           host);
        return;
    default:
        snib__tls_fail(out, SNIB__TLS_REFUSED, "%s refused TLS: %s", host, words);
    }
}

void snib__tls_explain(struct snib__tls_failure *out, const struct ssl_st *ssl, const char *host,
                       const struct snib__tls_context *context)
{
    const struct snib__openssl *o = snib__openssl();
    int short_of;
    unsigned long error = why_last(o, &short_of);
    int library = (int)(error >> 23 & 0xff), reason = (int)(error & 0x7fffff);
    long verdict = o->SSL_get_verify_result(ssl);
    const char *words = error ? o->ERR_reason_error_string(error) : NULL;
    words = words ? words : "no reason given";
    if (error & 0x80000000u) /* a system error */
        library = reason = 0;
    if (short_of) {
        snib__tls_fail(out, SNIB__TLS_BROKEN, "TLS with %s failed on this side: %s", host,
                       strerror(short_of));
        out->os_error = short_of;
        return;
    }
    if (!context->insecure && verdict != 0) {
        why_certificate(out, verdict, host, context);
        return;
    }
    if (library == WHY_LIB_SSL && reason >= WHY_ALERT && reason < WHY_ALERT + 256) {
        why_alert(out, reason - WHY_ALERT, words, host, context);
        return;
    }
    switch (library == WHY_LIB_SSL ? reason : 0) {
    case WHY_UNEXPECTED_EOF:
        snib__tls_fail(out, SNIB__TLS_CUT, "%s ended the connection without ending TLS", host);
        return;
    case WHY_BAD_RECORD:
        snib__tls_fail(out, SNIB__TLS_BROKEN, "a TLS record from %s is damaged", host);
        return;
    case WHY_NO_PROTOCOLS:
    case WHY_UNSUPPORTED_PROTOCOL:
    case WHY_WRONG_SSL_VERSION:
    case WHY_VERSION_TOO_LOW:
        snib__tls_fail(out, SNIB__TLS_VERSION,
                       "%s does not offer TLS 1.2 or newer; enable it on the server", host);
        return;
    case WHY_WRONG_VERSION_NUMBER:
    case WHY_PACKET_TOO_LONG:
    case WHY_UNEXPECTED_MESSAGE:
    case WHY_UNKNOWN_PROTOCOL:
    case WHY_BAD_RECORD_TYPE:
        snib__tls_fail(out, SNIB__TLS_NO_TLS,
                       "%s does not speak TLS; use its TLS port, or redis:// on a trusted network",
                       host);
        return;
    default:
        snib__tls_fail(out, SNIB__TLS_REFUSED, "TLS with %s failed: %s", host, words);
    }
}
