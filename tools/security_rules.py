"""The rules that keep strangers out and clients apart, each with a mutant without it: see mutate.py."""

from __future__ import annotations

from typing import Final

from mutant_rule import Rule

AUTHENTICATION: Final = "unit/auth/test_authentication.py"
PERMISSIONS: Final = "unit/auth/test_permissions.py"
PROOFS: Final = "unit/auth/test_proofs.py"
REMEMBERED: Final = "unit/auth/test_remembered.py"
GUARD: Final = "unit/broker/test_guard.py"
PLACES: Final = "unit/runtime/test_fair_places.py"
CALLS: Final = "unit/admin/test_call_places.py"
ENTRANCE: Final = "unit/runtime/test_entrance.py"
STRANGERS: Final = "integration/test_strangers.py"
GREETINGS: Final = "unit/broker/test_greetings.py"
TURNS: Final = "unit/broker/test_command_turns.py"
COMPRESSION: Final = "unit/client/test_compression.py"
FILTERS: Final = "unit/broker/test_filter_rules.py"
STORED: Final = "unit/broker/test_stored_bytes.py"
TENANTS: Final = "unit/broker/test_tenant_limits.py"
UNACKED: Final = "unit/broker/test_unacked_of_broker.py"
LOGS: Final = "unit/observability/test_logs.py"
HTTP_SERVER: Final = "unit/admin/test_server.py"
HTTP_APP: Final = "unit/admin/test_app.py"
HTTP_CALLS: Final = "unit/admin/test_limits.py"
EVENTS: Final = "unit/observability/test_events.py"

SECURITY_RULES: Final = (
    # -- what a token must be
    Rule(
        "a token has a bound",
        "whoever connects makes the broker parse as much as he likes",
        "auth/claims.py",
        "    if len(token) > TOKEN_BYTES_MAX:\n",
        "    if False:\n",
        (AUTHENTICATION,),
    ),
    Rule(
        "a token's times are looked at",
        "a token counts before it begins and after it has ended",
        "auth/claims.py",
        "        jwt.JWTClaimsRegistry(now=now_s, leeway=leeway_s).validate(claims)\n",
        "",
        (AUTHENTICATION,),
    ),
    Rule(
        "a token is signed",
        "whoever writes a token himself is who he says",
        "auth/claims.py",
        "algorithms=list(algorithms)",
        'algorithms=[*algorithms, "none"]',
        (AUTHENTICATION,),
    ),
    Rule(
        "a role is a text",
        "a token without a role, or with a number in its place, is somebody",
        "auth/claims.py",
        "    if not isinstance(role, str) or not role:\n",
        "    if not role:\n",
        (AUTHENTICATION,),
    ),
    Rule(
        "a role is not empty",
        "a token whose role is empty is somebody",
        "auth/claims.py",
        "    if not isinstance(role, str) or not role:\n",
        "    if not isinstance(role, str):\n",
        (AUTHENTICATION,),
    ),
    Rule(
        "roles of one token are bounded",
        "one token makes each question about rights dear",
        "auth/claims.py",
        "len(others) >= ROLES_MAX or ",
        "",
        (AUTHENTICATION,),
    ),
    Rule(
        "an identity ends with its token",
        "a connection outlives its token",
        "auth/claims.py",
        "int((end_s + leeway_s) * 1000), also=also",
        "None, also=also",
        (AUTHENTICATION,),
    ),
    Rule(
        "a revoked token is refused",
        "what was revoked lets in",
        "auth/claims.py",
        "    if found in revoked:\n",
        "    if False:\n",
        (AUTHENTICATION, PROOFS),
    ),
    Rule(
        "a token is for this audience",
        "a token for somebody else lets in here",
        "auth/claims.py",
        "    if not any(isinstance(each, str) and each in audiences for each in listed):\n",
        "    if not listed:\n",
        (AUTHENTICATION,),
    ),
    Rule(
        "a secret has a length",
        "a secret that can be guessed signs tokens",
        "auth/token.py",
        "    if len(secret) < SECRET_BYTES_MIN:\n",
        "    if not secret:\n",
        (AUTHENTICATION,),
    ),
    Rule(
        "a proof counts with its key alone",
        "a connection stays after the key was replaced",
        "auth/token.py",
        "return name == self._name and (",
        "return (",
        (PROOFS,),
    ),
    Rule(
        "a proof ends with a revocation",
        "a connection stays after its token was revoked",
        "auth/token.py",
        "(not token_id or token_id not in self._revoked)",
        "True",
        (PROOFS,),
    ),
    # -- passwords and certificates
    Rule(
        "who is not there is refused",
        "an unknown user comes in with the password of a decoy",
        "auth/basic.py",
        "if not good or hashed is None or not colon:",
        "if not good or not colon:",
        (AUTHENTICATION,),
    ),
    Rule(
        "a password must fit",
        "every password is right",
        "auth/basic.py",
        "if not good or hashed is None or not colon:",
        "if hashed is None or not colon:",
        (AUTHENTICATION,),
    ),
    Rule(
        "a proof ends with the password",
        "a connection stays after its password was changed",
        "auth/basic.py",
        "return hashed is not None and proof == _proof(user, hashed)",
        "return hashed is not None",
        (PROOFS,),
    ),
    Rule(
        "a certificate has one name",
        "of several names in a certificate the broker takes one",
        "auth/identity.py",
        "return names[0] if len(names) == 1 and names[0] else None",
        "return names[0] if names and names[0] else None",
        (AUTHENTICATION,),
    ),
    Rule(
        "a certificate needs today's trust",
        "a connection logs in by an authority that is trusted no more",
        "auth/authentication.py",
        "        if not trusted <= self._trusted:\n",
        "        if False:\n",
        (PROOFS, AUTHENTICATION),
    ),
    Rule(
        "all proofs go on to count",
        "a proxy's revoked credential is covered by its client's",
        "auth/authentication.py",
        "        return all(\n            (provider",
        "        return not identity.proofs or any(\n            (provider",
        (PROOFS,),
    ),
    Rule(
        "what was remembered ends with its credential",
        "who has expired is let in from memory",
        "auth/remembered.py",
        "end_ms = min(end_ms, answer.expires_ms)",
        "pass",
        (REMEMBERED,),
    ),
    Rule(
        "what was remembered ends",
        "a good answer is remembered for ever",
        "auth/remembered.py",
        "(good := self._good.get(digest)) is not None and now_ms < good[0]",
        "(good := self._good.get(digest)) is not None",
        (REMEMBERED,),
    ),
    Rule(
        "a method is part of what is remembered",
        "the same bytes let in by another method",
        "auth/remembered.py",
        'len(credentials.method).to_bytes(4, "big") + credentials.method.encode() + credentials.data',
        "credentials.data",
        (REMEMBERED,),
    ),
    Rule(
        "memory of credentials is bounded",
        "who guesses fills the memory",
        "auth/remembered.py",
        "    if len(entries) >= _ENTRIES_MAX:\n",
        "    if False:\n",
        (REMEMBERED,),
    ),
    Rule(
        "a change of users empties the memory",
        "a removed user is let in from memory",
        "broker/guard.py",
        "        self._remembered.forget()\n",
        "",
        (GUARD, REMEMBERED),
    ),
    # -- proxies
    Rule(
        "a proxy names its client",
        "a proxy acts for itself",
        "auth/proxies.py",
        "        if not original:\n",
        "        if False:\n",
        (GUARD, AUTHENTICATION),
    ),
    Rule(
        "a proxy speaks for no proxy",
        "two proxies lend each other their rights",
        "auth/proxies.py",
        "        if original in proxy_roles:\n",
        "        if False:\n",
        (GUARD, AUTHENTICATION),
    ),
    Rule(
        "others speak for themselves alone",
        "a client takes any role by naming it",
        "auth/proxies.py",
        '    elif original not in ("", role):\n',
        "    elif False:\n",
        (GUARD, AUTHENTICATION),
    ),
    Rule(
        "both speakers need the right",
        "a proxy lends its client what it may not do itself",
        "auth/identity.py",
        "return (own, (self.via,)) if self.via else (own,)",
        "return (own,)",
        (GUARD,),
    ),
    Rule(
        "a client's word behind a proxy is proven",
        "a proxy's client is whoever it says",
        "broker/guard.py",
        "        if not self.authentication.verify_original:\n",
        "        if True:\n",
        (GUARD,),
    ),
    Rule(
        "a proxy's role is none of several",
        "a credential with several roles has a proxy's rights",
        "broker/guard.py",
        "        if proxies.isdisjoint(identity.also):\n",
        "        if True:\n",
        (GUARD,),
    ),
    # -- rights
    Rule(
        "a cluster's rights are nobody's grant",
        "a tenant's administrator administers the cluster",
        "auth/permissions.py",
        "    if action in (Action.ADMINISTER_CLUSTER, Action.READ_METRICS):\n",
        "    if False:\n",
        (PERMISSIONS,),
    ),
    Rule(
        "a grant administers no tenant",
        "whoever may produce administers",
        "auth/permissions.py",
        "    if action is Action.ADMINISTER_TENANT:\n        return False\n",
        "    if action is Action.ADMINISTER_TENANT:\n        return bool(namespace.get('auth_policies'))\n",
        (PERMISSIONS,),
    ),
    Rule(
        "a right is a granted one",
        "who may consume may produce",
        "auth/permissions.py",
        "    if action.value not in granted:\n",
        "    if not granted:\n",
        (PERMISSIONS,),
    ),
    Rule(
        "a subscription is of its roles",
        "everybody who may consume takes another's subscription",
        "auth/permissions.py",
        "    if roles and role not in roles:\n",
        "    if False:\n",
        (PERMISSIONS,),
    ),
    Rule(
        "a subscription begins with its role",
        "the prefix mode is without effect",
        "auth/permissions.py",
        'return namespace.get("subscription_auth_mode") != "Prefix" or subscription.startswith(role)',
        "return True",
        (PERMISSIONS,),
    ),
    Rule(
        "the cluster needs a superuser",
        "everybody administers the cluster",
        "broker/guard.py",
        "        if not self.is_superuser(identity):\n            raise",
        "        if False:\n            raise",
        (GUARD, "unit/admin/test_authorization.py"),
    ),
    Rule(
        "what is logged of a stranger is cut",
        "one name of megabytes fills the audit log",
        "broker/guard.py",
        'return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"',
        "return text",
        (GUARD,),
    ),
    # -- places
    Rule(
        "an address waits with a bound",
        "one address fills the queue for dear checks",
        "runtime/fair_places.py",
        "        if len(line) >= self._waiting_max:\n",
        "        if False:\n",
        (PLACES,),
    ),
    Rule(
        "places are given owner after owner",
        "the one with many waiting keeps all others out",
        "runtime/fair_places.py",
        "            if line:\n                self._waiting[owner] = line\n",
        "            if line:\n                self._waiting = {owner: line, **self._waiting}\n",
        (PLACES,),
    ),
    Rule(
        "a place comes back from who leaves",
        "clients that go away take the places with them",
        "runtime/fair_places.py",
        "                # The place was given just before.\n                self._give_back()\n",
        "                pass\n",
        (PLACES,),
    ),
    Rule(
        "calls of all are bounded",
        "calls take all memory",
        "admin/call_places.py",
        "calls.total() >= _CALLS_MAX or ",
        "",
        (CALLS,),
    ),
    Rule(
        "calls of an address are bounded",
        "one address takes all places of calls",
        "admin/call_places.py",
        " or calls[address] >= _CALLS_PER_ADDRESS_MAX",
        "",
        (CALLS,),
    ),
    Rule(
        "probes are bounded",
        "probes take what calls may not",
        "admin/call_places.py",
        " and self._probes < _PROBES_MAX",
        "",
        (CALLS,),
    ),
    Rule(
        "sockets are bounded",
        "strangers take all descriptors",
        "runtime/entrance.py",
        "        if 0 < self._sockets_max <= self._count:\n",
        "        if False:\n",
        (ENTRANCE,),
    ),
    Rule(
        "sockets of an address are bounded",
        "one address takes all descriptors",
        "runtime/entrance.py",
        'return ADDRESS if 0 < self._per_address_max <= self._by_address.get(address, 0) else ""',
        'return ""',
        (ENTRANCE,),
    ),
    # -- who has not said who it is
    Rule(
        "who waits for CONNECT has a deadline",
        "idle sockets stay for ever",
        "broker/greetings.py",
        ("            if self._looks - came <= self._looks_max:\n                return\n"),
        "            return\n",
        (GREETINGS,),
    ),
    Rule(
        "connections before CONNECT are bounded",
        "idle sockets take all places",
        "broker/greetings.py",
        "        if len(self._guests) >= _WAITING_MAX:\n",
        "        if False:\n",
        (GREETINGS,),
    ),
    Rule(
        "bytes before CONNECT are bounded together",
        "halves of CONNECTs take all memory",
        "broker/greetings.py",
        "        return self._kept_bytes <= _KEPT_BYTES_MAX\n",
        "        return True\n",
        (GREETINGS,),
    ),
    Rule(
        "a frame before CONNECT is small",
        "who says a size gets the memory",
        "broker/connection.py",
        "            if needed > CONNECT_BYTES_MAX:\n",
        "            if False:\n",
        (STRANGERS,),
    ),
    # -- shares of a turn
    Rule(
        "a read handles some commands",
        "one read of PINGs stops everybody",
        "broker/command_turns.py",
        "            self.per_read = 1\n",
        "            self.per_read = 8\n",
        (TURNS,),
    ),
    Rule(
        "a turn begins some requests",
        "one connection's requests stop everybody",
        "broker/command_turns.py",
        "        if self._waiting or self._begun >= _REQUESTS_PER_TURN:\n",
        "        if self._waiting:\n",
        (TURNS,),
    ),
    Rule(
        "a turn ends after its time",
        "what is left over is done at once",
        "broker/command_turns.py",
        "            if not self._waiting or self._now_ms() >= until_ms:\n",
        "            if not self._waiting:\n",
        (TURNS,),
    ),
    Rule(
        "roles take turns",
        "a role with many connections has more of the loop",
        "broker/command_turns.py",
        (
            "            workers = self._waiting.pop(owner)\n"
            "            worker = next(iter(workers))\n"
            "            del workers[worker]\n"
            "            if workers:\n"
            "                self._waiting[owner] = workers\n"
        ),
        (
            "            workers = self._waiting[owner]\n"
            "            worker = next(iter(workers))\n"
            "            del workers[worker]\n"
            "            if not workers:\n"
            "                del self._waiting[owner]\n"
        ),
        (TURNS,),
    ),
    Rule(
        "a role's commands have a rate",
        "a role has the broker over seconds",
        "broker/command_turns.py",
        "        rate.take(commands, now_ms)\n",
        "",
        (TURNS,),
    ),
    # -- what is opened
    Rule(
        "who shares a process opens no more than it can spare",
        "one message takes gigabytes",
        "client/compression.py",
        "    if bytes_max is not None and size > bytes_max:\n",
        "    if False:\n",
        (COMPRESSION,),
    ),
    Rule(
        "zlib gives no more than was said",
        "as above",
        "client/compression.py",
        "        plain = stream.decompress(payload, size + 1)\n",
        "        plain = stream.decompress(payload)\n",
        (COMPRESSION,),
    ),
    Rule(
        "a payload is as long as was said",
        "compaction and filters read bytes of nobody",
        "client/compression.py",
        "    if not whole or len(plain) != size:\n",
        "    if not whole:\n",
        (COMPRESSION,),
    ),
    # -- entry filters
    Rule(
        "an expression is short",
        "parsing it stops everybody",
        "broker/filters/expression.py",
        "        if len(text) > _CHARS_MAX:\n",
        "        if False:\n",
        (FILTERS,),
    ),
    Rule(
        "metadata that an expression sees are bounded",
        "a message with very many properties stops everybody",
        "broker/filters/expression.py",
        "        if candidate.metadata.ByteSize() > _METADATA_BYTES_MAX:\n",
        "        if False:\n",
        (FILTERS, "unit/broker/test_entry_filters.py"),
    ),
    Rule(
        "work on a batch is bounded",
        "a batch that says very much stops everybody",
        "broker/filters/expression.py",
        "        return said_bytes > self._said_bytes_max or any(\n",
        "        return any(\n",
        (FILTERS, "unit/broker/test_entry_filters.py"),
    ),
    Rule(
        "a turn judges some entries",
        "many entries at once stop everybody",
        "broker/filters/judge.py",
        "            if left_bytes < 0 and place:\n",
        "            if False:\n",
        (FILTERS, "unit/broker/test_entry_filters.py"),
    ),
    # -- what a tenant stores and holds
    Rule(
        "a tenant that stores too much is refused",
        "a tenant fills the disk",
        "broker/limits/tenants.py",
        ("        if self.refusal:\n            raise StoredQuotaError("),
        ("        if False:\n            raise StoredQuotaError("),
        (STORED,),
    ),
    Rule(
        "producers of a tenant that stores too much are sent away",
        "those that are there go on",
        "broker/limits/stored_bytes.py",
        "        await _send_away(broker, tenant)\n",
        "",
        (STORED,),
    ),
    Rule(
        "topics that nobody loaded are counted",
        "a restart makes a tenant's history free",
        "broker/limits/stored_bytes.py",
        "                size = 0 if found is None else found.size_bytes\n",
        "                size = 0\n",
        (STORED,),
    ),
    Rule(
        "a tenant is taken again below its limit only",
        "it goes in and out with each message",
        "broker/limits/stored_bytes.py",
        "stored * 100 < limit * AGAIN_PERCENT",
        "stored <= limit",
        (STORED,),
    ),
    Rule(
        "connections of an address have a limit",
        "one address has all connections",
        "broker/limits/tenants.py",
        "limits.connections_max_per_address, f",
        "0, f",
        (TENANTS,),
    ),
    Rule(
        "connections of a role have a limit",
        "one role has all connections",
        "broker/limits/tenants.py",
        '            _check(self._by_role[role], self._limits.connections_max_per_role, f"role {role}")\n',
        "            pass\n",
        (TENANTS,),
    ),
    Rule(
        "unacknowledged messages of all have a limit",
        "tenants that never acknowledge take all memory",
        "broker/dispatch/unacked.py",
        "        elif self.total > self.maximum:\n",
        "        elif False:\n",
        (UNACKED,),
    ),
    Rule(
        "who holds little goes on",
        "one tenant's unacknowledged messages stop everybody's",
        "broker/dispatch/unacked.py",
        "        if limit.total > self.part:\n",
        "        if True:\n",
        (UNACKED,),
    ),
    # -- the log
    Rule(
        "control characters of errors are escaped",
        "a name forges a line of the log",
        "observability/logs.py",
        "error.translate(_CONTROLS)",
        "error",
        (LOGS,),
    ),
    Rule(
        "refusals are counted by who is refused",
        "one address's refusals hide those of others",
        "observability/logs.py",
        '        of_subject = self._subjects.admit(f"{event} {subject}", now_s)\n',
        "        of_subject = self._subjects.admit(event, now_s)\n",
        (LOGS, EVENTS),
    ),
    Rule(
        "refusals of all are bounded",
        "very many addresses fill the disk with refusals",
        "observability/logs.py",
        "        of_all = self._refusals.admit(event, now_s)\n",
        "        of_all = 0\n",
        (LOGS, EVENTS),
    ),
    Rule(
        "what comes too often is left out",
        "a client fills the disk with lines of the log",
        "observability/logs.py",
        ("        if left_out is None:\n            _FIGURES.suppressed += 1\n            return False\n"),
        "",
        (LOGS, EVENTS),
    ),
    # -- HTTP and WebSockets
    Rule(
        "the head of a call has a deadline",
        "heads that do not end take all sockets",
        "admin/loop_server.py",
        "now_s - self._head_since_s > HEAD_S",
        "False",
        (HTTP_SERVER,),
    ),
    Rule(
        "an answer that nobody takes ends its connection",
        "clients that read nothing take memory and sockets",
        "admin/loop_server.py",
        "        elif now_s - self._stuck[1] > STUCK_S:\n",
        "        elif False:\n",
        (HTTP_SERVER,),
    ),
    Rule(
        "a body is bounded",
        "a call takes all memory",
        "admin/app.py",
        "                if size > BODY_BYTES_MAX:\n",
        "                if False:\n",
        (HTTP_APP, HTTP_CALLS),
    ),
)
