"""The atlas: recorded evidence on every claim and every variant, as a site of static pages."""
