"""The TLS settings of a client: trusted certificates and its own certificate."""

from __future__ import annotations

import ssl

from magnetar.client.options import BadCredentialsError, ClientOptions


def tls_context(options: ClientOptions) -> ssl.SSLContext:
    """The TLS context for connections to brokers and admin interfaces. Raises BadCredentialsError for
    unusable files."""
    try:
        context = ssl.create_default_context(cafile=options.tls_trust_certs_file or None)
        context.check_hostname = options.tls_validate_hostname
        if options.tls_certificate_file:
            context.load_cert_chain(options.tls_certificate_file, options.tls_key_file or None)
    except OSError as error:
        files = (options.tls_trust_certs_file, options.tls_certificate_file, options.tls_key_file)
        raise BadCredentialsError(
            f"TLS: {', '.join(file for file in files if file)} cannot be used: {error.strerror or error}"
        ) from error
    return context
