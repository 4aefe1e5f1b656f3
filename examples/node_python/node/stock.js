"use strict";
// Takes placed orders, sets the goods aside, and has them billed.

const { worker } = require("./babelqueue");

worker("orders", (publish) => ({
  "urn:shop:order:placed": async ({ data }) => {
    console.log(`stock (Node): order ${data.order_id} is set aside`);
    await publish("billing", "urn:shop:order:reserved", data);
  },
}));
