"""Planted bugs: addresses, URLs and the options in them."""

from . import Mutant

MUTANTS = [
    Mutant(
        "a password with a raw / in it names the host",
        "api/url.c",
        "(!scheme->is_unix && memchr(path.at, '@', path.n))",
        "false",
        "unit_url",
    ),
    Mutant(
        "a host may be named twice",
        "api/url.c",
        "if (snib__address_equal(&out->addresses[i], address))",
        "if (false)",
        "unit_url",
    ),
    Mutant(
        "a cluster is asked for another database",
        "api/url.c",
        "if (out->topology == SNIB__CLUSTER && number != 0)",
        "if (false)",
        "unit_url",
    ),
    Mutant(
        "the URL goes before the program",
        "api/options.c",
        "if (number == 0) option_put(option, o, option_get(option, query));",
        "if (option_get(option, query)) option_put(option, o, option_get(option, query));",
        "unit_options",
    ),
    Mutant(
        "an option that is not built yet is taken without effect",
        "api/options.c",
        "if (!options_table[i].is_ready && option_is_given(&options_table[i], o, url))",
        "if (false)",
        "unit_options",
    ),
    Mutant(
        "an empty server name is taken, so that none is checked",
        "api/options.c",
        "if (text[0] == '\\0' && option->kind != OPTION_SECRET)",
        "if (false)",
        "unit_options",
    ),
    Mutant(
        "host names are compared by case",
        "net/address.c",
        "return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;",
        "return c;",
        "unit_address",
    ),
    Mutant(
        "credentials do not go before the URL's password file",
        "api/options.c",
        "if ((o->password && !o->password_file) || asks) {",
        "if (o->password && !o->password_file) {",
        "unit_options",
    ),
    Mutant(
        "a URL's password that is replaced is not wiped",
        "api/options.c",
        "snib__url_wipe(*own);",
        "free(*own);",
        "unit_secrets",
    ),
    Mutant(
        "the text of a URL's option is not wiped",
        "api/url.c",
        "snib__url_wipe(value);",
        "free(value);",
        "unit_secrets",
    ),
    Mutant(
        "a password with a bad end is not wiped",
        "api/url.c",
        "snib__url_wipe(text); return snib__fail(",
        "free(text); return snib__fail(",
        "unit_secrets",
    ),
    Mutant(
        "a URL that is forgotten is not wiped",
        "api/url.c",
        "snib__url_wipe(*texts[i]);",
        "free(*texts[i]);",
        "unit_secrets",
    ),
    Mutant(
        "tls_insecure=no is yes",
        "api/options.c",
        "url->tls_insecure = o->tls_insecure > 0;",
        "url->tls_insecure = o->tls_insecure != 0;",
        "unit_options",
    ),
    Mutant(
        "tls_insecure=no beside tls_ca is refused",
        "api/options.c",
        "if (url->tls_ca && o->tls_insecure > 0)",
        "if (url->tls_ca && o->tls_insecure != 0)",
        "unit_options",
    ),
]
