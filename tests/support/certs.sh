#!/bin/sh
# certs.sh FOLDER - valid and invalid certificates for tests, made by the openssl command.
#
#   ca.crt              a CA, which signs all certificates without another issuer below
#   server.crt .key     for localhost, *.wild.test, 127.0.0.1 and ::1
#   again.crt .key      the same, another key
#   expired other self stranger   server certificates, named after what is wrong with them
#   client.crt .key     a client's, key with the password "canary" in client.enc
#   cas/                the CA in a folder, under its hash
set -eu
cd "$1"
umask 077

names="subjectAltName=DNS:localhost,DNS:*.wild.test,IP:127.0.0.1,IP:::1"

# authority NAME
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.crt" \
        -days 30 -subj "/CN=Test $1" -addext basicConstraints=critical,CA:TRUE \
        -addext keyUsage=critical,keyCertSign,cRLSign
}

# signed NAME ISSUER EXTENSION OPTION...
signed() {
    name=$1 issuer=$2
    printf '%s\n' "$3" subjectKeyIdentifier=hash authorityKeyIdentifier=keyid >"$name.ext"
    shift 3
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$name.key" -out "$name.csr" -subj "/CN=$name"
    openssl x509 -req -in "$name.csr" -out "$name.crt" -CA "$issuer.crt" -CAkey "$issuer.key" -CAcreateserial \
        -extfile "$name.ext" "$@"
    rm "$name.ext" "$name.csr"
}

{
    authority ca
    authority strange
    signed server ca "$names" -days 30
    signed again ca "$names" -days 30
    signed expired ca "$names" -days -1
    signed other ca "subjectAltName=DNS:elsewhere.test" -days 30
    signed stranger strange "$names" -days 30
    signed client ca "extendedKeyUsage=clientAuth" -days 30
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout self.key -out self.crt \
        -days 30 -subj "/CN=self" -addext "$names"
    openssl ec -in client.key -out client.enc -aes256 -passout pass:canary
    mkdir cas
    cp ca.crt "cas/$(openssl x509 -in ca.crt -noout -hash).0"
} >log 2>&1 </dev/null || { cat log >&2; exit 1; }
