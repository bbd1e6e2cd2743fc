"""The atlas: what is known of every claim and every variant, as a site of static pages."""
