"""Enqueues two jobs: one leads to another, and one is hopeless."""

from tasks import Mail, Photo, store

store.enqueue("thumbnail.make", Photo("cat"))
store.enqueue("mail.send", Mail(""), max_attempts=2)
