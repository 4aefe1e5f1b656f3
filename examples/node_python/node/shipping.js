"use strict";
// Takes paid orders and ships them. One without an address fails, three times, and is a dead letter.

const { worker } = require("./babelqueue");

worker("shipping", () => ({
  "urn:shop:order:paid": async ({ data }, headers) => {
    if (!data.address) throw new Error(`order ${data.order_id} has no address`);
    const carried = Object.keys(headers).join(", ") || "no headers";
    console.log(`shipping (Node): order ${data.order_id} is shipped; it came with ${carried}`);
  },
}));
