"""SQL92 conditions over the properties of messages: `parser` reads them, `expressions` says whether they hold."""
