// An OpenID Connect issuer for tests: `oidc-provider` on a free port of 127.0.0.1, with two clients.
//
// Its first argument is the audience of its tokens. Behind `> ` it prints its URL, then each line that it has
// read and done:
//   rotate   tokens are signed with a new key from now on, which is published beside the old one
//   drop     only the newest key is published
// It ends with its input.

import { generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { Provider } from "oidc-provider";

const audience = process.argv[2];
const keys = [];
let issuer = "";
let answer;

function newKey() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  keys.unshift({ ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig", alg: "RS256" });
}

function serve() {
  const provider = new Provider(issuer, {
    jwks: { keys: keys.map((key) => ({ ...key })) },
    clients: [
      {
        client_id: "orders",
        client_secret: "orders-secret",
        grant_types: ["client_credentials"],
        response_types: [],
        redirect_uris: [],
        token_endpoint_auth_method: "client_secret_post",
      },
      {
        client_id: "web",
        client_secret: "web-secret",
        grant_types: ["authorization_code"],
        redirect_uris: ["http://127.0.0.1:9/callback"],
        application_type: "native",
        token_endpoint_auth_method: "client_secret_post",
      },
    ],
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => audience,
        useGrantedResource: () => true,
        getResourceServerInfo: (_context, resource) => ({
          scope: "stream",
          audience: resource,
          accessTokenTTL: 600,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
  });
  answer = provider.callback();
}

const server = createServer((request, response) => answer(request, response));
server.listen(0, "127.0.0.1", () => {
  issuer = `http://127.0.0.1:${server.address().port}`;
  newKey();
  serve();
  console.log(`> ${issuer}`);
  const commands = createInterface({ input: process.stdin });
  commands.on("line", (command) => {
    if (command === "rotate") newKey();
    if (command === "drop") keys.length = 1;
    serve();
    console.log(`> ${command}`);
  });
  commands.on("close", () => process.exit(0));
});
