// @ts-check
// The link of an invitation has its code behind `#`, which browsers do not send. It is moved into the form and out of
// the address, so that neither the history nor a photograph of the screen keeps it.

import { $ } from "./dom.js";

const code = location.hash.slice(1);
if (code) {
  $("#code").value = decodeURIComponent(code);
  history.replaceState(null, "", location.pathname);
  $("#password").focus();
}
