hooks="/usr/libexec/bookend/bookend-prolog /usr/libexec/bookend/bookend-epilog /usr/libexec/bookend/bookend-healthcheck"
